"""Logs of training runs and of collective tests -> what they measured."""
