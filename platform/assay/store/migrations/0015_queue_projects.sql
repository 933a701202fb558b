-- A queue belongs to a project; who is a member of it is in access.sqlite. Queues of before belong to the default one.
ALTER TABLE queues ADD COLUMN project VARCHAR DEFAULT 'default';
