"""The files and data sets that hold records: one module for each container."""
