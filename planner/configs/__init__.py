"""What people already have: configurations and command lines of other tools -> settings, a layout, faults."""
