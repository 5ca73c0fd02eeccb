"""The built-in world: ground-truthed scenes, and the small models that were trained on them."""
