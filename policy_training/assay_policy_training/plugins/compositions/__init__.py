"""S3: from named reward parts to one reward."""
