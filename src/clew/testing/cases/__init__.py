"""The cases of `clew.testing.conformance`, by what they guard."""
