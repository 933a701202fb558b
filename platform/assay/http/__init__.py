"""HTTP basics that every server of Assay shares: bodies, errors, connections, addresses."""
