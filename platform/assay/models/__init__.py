"""Language models and reward models: naming, loading, the embedded one, chat rendering, the checkpoint's spec."""
