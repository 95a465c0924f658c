"""CEL for admission: parser, checker, compiler to Python, libraries, cost. Pure."""
