"""Small errors that are put into the product, one at a time: a test should notice each."""
