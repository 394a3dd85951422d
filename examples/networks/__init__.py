"""The networks of the two seed works: ResNet and CANDLE's NT3."""
