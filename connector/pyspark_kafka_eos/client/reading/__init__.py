"""Reading: fetches, offsets, leader epochs, and who may say that something is not there."""
