-- Fencing where the data is: writes that come too late are refused by the database itself. A program
-- calls lockproxy_fence(name, token) first in each transaction that writes under a lock of lockproxy,
-- by the helper of its language or as SELECT lockproxy_fence('report', 1795236369435154).
--
-- The row of a lock's name stays locked until the transaction ends: a later holder waits for it, and
-- what was written under the earlier lock is then there, or rolled back.

CREATE TABLE IF NOT EXISTS lockproxy_fences (
    name text PRIMARY KEY,
    token bigint NOT NULL -- the highest that has been seen
);

CREATE OR REPLACE FUNCTION lockproxy_fence(name text, token bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lockproxy_fences AS seen VALUES (lockproxy_fence.name, lockproxy_fence.token)
    ON CONFLICT ON CONSTRAINT lockproxy_fences_pkey DO UPDATE SET token = excluded.token
    WHERE seen.token <= excluded.token;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lock "%" was lost: token % is not the latest',
            lockproxy_fence.name, lockproxy_fence.token
            USING ERRCODE = 'LP001';
    END IF;
END
$$;
