"""Reports of single runs: training, policy training, calibration."""
