"""Repairing a files store: `workshop` is alone with a copy, `salvage` reads the lines left."""
