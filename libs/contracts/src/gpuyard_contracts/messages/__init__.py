"""Every message, in the file of its publisher. One class is one type and one version."""
