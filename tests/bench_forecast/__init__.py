"""Forecasts of starts on a trace, judged by what then happens."""
