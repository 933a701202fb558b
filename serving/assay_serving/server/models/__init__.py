"""The models of a server: loading and unloading, which one answers, their queues."""
