"""After a run: tables, curves and money, read from its files. Nothing here asks a model."""
