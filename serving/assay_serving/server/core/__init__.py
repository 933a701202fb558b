"""Settings, logs and the interface between routes and the models behind them."""
