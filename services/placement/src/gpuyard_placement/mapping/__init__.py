"""Messages, rows and the domain's nouns: the only place that knows two of them. `messages` and `rows` each know one beside the domain."""
