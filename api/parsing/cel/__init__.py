"""CEL, the Common Expression Language: `parser.compile_cel`, the nodes that it makes, and their values."""
