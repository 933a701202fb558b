-- What each decision rested on, written with it: the judgments it counted, the labels it checked, the models that scored
-- it, the comparison it was retrieved near or is a duplicate of. `relation`: see assay.store.records. NULL: decided before
-- this was recorded; an empty list: by the comparison's own text alone.
ALTER TABLE decisions ADD COLUMN basis STRUCT(relation VARCHAR, ref VARCHAR)[];

-- The labelled comparisons that a judge was shown as examples when it was asked, in their order. Judgments that are older
-- than this table have none here, whatever they were shown.
CREATE TABLE judgment_demonstrations (
    judgment_id   VARCHAR NOT NULL,
    position      INTEGER NOT NULL,          -- 0 = the first
    comparison_id VARCHAR NOT NULL
);
