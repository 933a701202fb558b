"""What people see: reports, and the demo that shows every part at work."""
