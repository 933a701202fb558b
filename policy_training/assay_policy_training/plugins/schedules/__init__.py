"""S13: settings that change from step to step."""
