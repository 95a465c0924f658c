"""What is doubtful about policies that compile."""
