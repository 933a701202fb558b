"""Bulk work on Parquet shards: one job, mapped over them by processes of this machine or by a Ray cluster."""
