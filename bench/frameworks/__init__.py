"""DeepFreeze beside what each framework brings along to save with."""
