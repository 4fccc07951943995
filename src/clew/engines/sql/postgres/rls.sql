-- Row-level security, for a server where each tenant has a role of its own: `clew migrate --rls` runs this.
-- Optional, and can be run again at any time. It is written for the schema "clew", like the rest.
--
--   grants              which namespaces a role may use
--   grant_namespace     lets a role use a namespace, which is made if need be, and nothing else
--   revoke_namespace    takes that back
--   give_rights         is a part of it
--
-- A role sees and writes the rows of the namespaces that were granted to it. It sees the names of no
-- others, and can make none. The owner of the tables is not held to this (no FORCE), so that upkeep
-- works; nor are superusers, and roles with BYPASSRLS. Partitions have no policy, which leaves them to
-- the owner: every other role goes through the table that they are part of.
--
-- What a role may use is looked up once a statement, by an index, and not once a row: the subquery
-- depends on no row. A login that is only a member of the role does SET ROLE first.

-- This waits for statements that use a table, and later ones wait behind it: not for long, rather try again.
SET LOCAL lock_timeout = '2s';

CREATE TABLE IF NOT EXISTS clew.grants (
  role  name    NOT NULL,
  space integer NOT NULL REFERENCES clew.namespaces (no) ON DELETE CASCADE,
  PRIMARY KEY (role, space)
);

DO $$
DECLARE
  granted constant text := 'ARRAY(SELECT g.space FROM clew.grants g WHERE g.role = current_user)';
  part record;
  rule text;
BEGIN
  FOR part IN
    SELECT c.oid, c.oid::regclass AS name, c.relrowsecurity AS secured,
           CASE WHEN c.relispartition THEN NULL
                WHEN c.oid = 'clew.grants'::regclass THEN 'FOR SELECT USING (role = current_user)'
                WHEN c.oid = 'clew.namespaces'::regclass THEN 'FOR SELECT USING (no = ANY (' || granted || '))'
                ELSE 'USING (space = ANY (' || granted || '))' END AS rule
      FROM pg_class c
     WHERE c.relkind IN ('r', 'p') AND c.oid <> 'clew.format'::regclass
       AND c.relnamespace = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = 'clew.threads'::regclass)
  LOOP
    IF NOT part.secured THEN
      EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', part.name);
    END IF;
    IF part.rule IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM pg_policy p WHERE p.polrelid = part.oid AND p.polname = 'tenants') THEN
      EXECUTE format('CREATE POLICY tenants ON %s %s', part.name, part.rule);
    END IF;
  END LOOP;
END $$;

-- What a role needs to work at all; which rows that shows it is the policies' affair.
CREATE OR REPLACE FUNCTION clew.give_rights(_role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part record;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA clew TO %I', _role);
  FOR part IN
    SELECT c.oid::regclass AS name,
           CASE WHEN c.relname IN ('format', 'namespaces', 'grants') THEN 'SELECT'
                ELSE 'SELECT, INSERT, UPDATE, DELETE' END AS rights
      FROM pg_class c
     WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
       AND c.relnamespace = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = 'clew.threads'::regclass)
  LOOP
    EXECUTE format('GRANT %s ON %s TO %I', part.rights, part.name, _role);
  END LOOP;
  FOR part IN
    SELECT p.oid::regprocedure AS name FROM pg_proc p
     WHERE p.pronamespace = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = 'clew.threads'::regclass)
       AND p.proname NOT IN ('give_rights', 'grant_namespace', 'revoke_namespace')
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', part.name, _role);
  END LOOP;
END $$;

-- CL005: the role is one that row-level security does not hold.
CREATE OR REPLACE FUNCTION clew.grant_namespace(_role name, _namespace text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (
    SELECT 1 FROM pg_roles r, pg_class c
     WHERE r.rolname = _role AND c.oid = 'clew.threads'::regclass
       AND (r.rolsuper OR r.rolbypassrls OR pg_has_role(r.oid, c.relowner, 'USAGE'))) THEN
    RAISE EXCEPTION 'row-level security does not hold for role %', _role USING ERRCODE = 'CL005';
  END IF;
  INSERT INTO clew.namespaces (name) VALUES (_namespace) ON CONFLICT (name) DO NOTHING;
  INSERT INTO clew.grants (role, space)
  SELECT _role, n.no FROM clew.namespaces n WHERE n.name = _namespace
  ON CONFLICT (role, space) DO NOTHING;
  PERFORM clew.give_rights(_role);
END $$;

-- With the last namespace the rights go too.
CREATE OR REPLACE FUNCTION clew.revoke_namespace(_role name, _namespace text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM clew.grants g USING clew.namespaces n
   WHERE n.no = g.space AND n.name = _namespace AND g.role = _role;
  IF NOT EXISTS (SELECT 1 FROM clew.grants g WHERE g.role = _role)
     AND EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = _role) THEN
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA clew FROM %I', _role);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA clew FROM %I', _role);
    EXECUTE format('REVOKE ALL ON SCHEMA clew FROM %I', _role);
  END IF;
END $$;

REVOKE ALL ON FUNCTION clew.give_rights(name), clew.grant_namespace(name, text), clew.revoke_namespace(name, text)
  FROM PUBLIC;

-- Tables that came later are for those too who were granted a namespace before.
SELECT clew.give_rights(r.rolname) FROM pg_roles r WHERE EXISTS (SELECT 1 FROM clew.grants g WHERE g.role = r.rolname);
