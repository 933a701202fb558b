-- Every calibration that was fitted, and which one a stored probability came from. A probability without a calibration
-- is from before this was recorded. The model's version does not change with its calibration: it names the weights.
CREATE TABLE calibrations (
    calibration_id VARCHAR NOT NULL,      -- content hash of the function; equal fits have equal ids
    model_version  VARCHAR NOT NULL,
    method         VARCHAR NOT NULL,      -- temperature, platt, isotonic
    parameters     JSON NOT NULL,         -- all of the calibration, with its held-out figures
    run_id         VARCHAR,
    created_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (calibration_id, model_version)
);

ALTER TABLE scores ADD COLUMN calibration VARCHAR;
