"""Policies beside admission: their statuses, the background scan and its reports."""
