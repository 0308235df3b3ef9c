"""What goes over HTTP: bodies and answers as models, each with an example for the API's description."""
