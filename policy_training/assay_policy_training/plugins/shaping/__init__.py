"""S3: rewards shaped by length, group or KL, after the filters."""
