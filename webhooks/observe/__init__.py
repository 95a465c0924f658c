"""What is recorded of decisions after the answer: shadows of policies, and reports."""
