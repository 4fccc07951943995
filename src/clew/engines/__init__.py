"""The engines: implementations of the waist, one storage each. Imported when they are opened."""
