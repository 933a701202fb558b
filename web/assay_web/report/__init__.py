"""Reports: one self-contained HTML file with figures, charts, tables, samples and provenance."""
