"""What Auto would have done on a pool's own history: recorded, replayed through the decision core, reported."""
