-- What a decided label is worth to a training: `weight` multiplies its loss, `preference` is P(the label is right) where
-- a training may read it as a soft label. NULL: 1, as every decision of before.
ALTER TABLE decisions ADD COLUMN weight DOUBLE;
ALTER TABLE decisions ADD COLUMN preference DOUBLE;
ALTER TABLE snapshot_items ADD COLUMN preference DOUBLE;
