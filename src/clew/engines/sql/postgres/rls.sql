-- Row-level security, for a server where each tenant has a role of its own: `clew migrate --rls` runs this.
-- Optional, and can be run again at any time. It is written for the schema "clew", like the rest.
--
--   grants              which namespaces a role may use
--   admits              whether the role in force may use a namespace
--   grant_namespace     lets a role use a namespace, which is made if need be, and nothing else
--   revoke_namespace    takes that back
--   give_rights         is a part of it
--
-- A role has no right on any table: it could lock one, and a plan of its own would tell how many rows of others were
-- passed over. It may run the functions that ask `admit`, which run as the owner, and reach the rows of the namespaces
-- that were granted to the role. It sees the names of no others, and can make none.
--
-- The policies on the tables are a second wall, for roles that somebody gives rights on tables by hand. They do not
-- hold the owner (no FORCE), so that upkeep works; nor superusers, and roles with BYPASSRLS. Partitions have no
-- policy, which leaves them to the owner: every other role goes through the table that they are part of.
--
-- A role is kept by its number and not by its name, so that a new role of an old name gets nothing. As a regrole it
-- is written by its name into a dump, and is restored as the role of that name. The role is the one that is in force:
-- a login that is only a member of it does SET ROLE first.

-- This waits for statements that use a table, and later ones wait behind it: not for long, rather try again.
SET LOCAL lock_timeout = '2s';

CREATE TABLE IF NOT EXISTS clew.grants (
  role  regrole NOT NULL,
  space integer NOT NULL REFERENCES clew.namespaces (no) ON DELETE CASCADE,
  PRIMARY KEY (role, space)
);

DO $$
DECLARE
  granted constant text :=
    'ARRAY(SELECT g.space FROM clew.grants g WHERE g.role = quote_ident(current_user)::regrole)';
  part record;
BEGIN
  FOR part IN
    SELECT c.oid, c.oid::regclass AS name, c.relrowsecurity AS secured,
           CASE WHEN c.relispartition THEN NULL
                WHEN c.oid = 'clew.grants'::regclass THEN 'FOR SELECT USING (role = quote_ident(current_user)::regrole)'
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

-- The caller of a function that runs as the owner: the role that was set, or else the login. The setting cannot be
-- forged: to change it is to change the role. A role that the policies do not hold may use every namespace.
CREATE OR REPLACE FUNCTION clew.admits(_space bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  caller constant oid := quote_ident(
    CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END)::regrole::oid;
BEGIN
  RETURN EXISTS (SELECT 1 FROM clew.grants g WHERE g.role = caller AND g.space = _space) OR EXISTS (
    SELECT 1 FROM pg_roles r, pg_class c
     WHERE r.oid = caller AND c.oid = 'clew.threads'::regclass
       AND (r.rolsuper OR r.rolbypassrls OR pg_has_role(r.oid, c.relowner, 'USAGE')));
END $$;

-- The functions that ask are the tenants', and run as the owner, by names that no other role can put something
-- before. All others are for the owner.
DO $$
DECLARE
  part record;
BEGIN
  FOR part IN
    SELECT p.oid::regprocedure AS name, p.proname <> 'admit' AND p.prosrc LIKE '%clew.admit%' AS asks FROM pg_proc p
     WHERE p.pronamespace = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = 'clew.threads'::regclass)
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', part.name);
    IF part.asks THEN
      EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = pg_catalog, pg_temp', part.name);
    END IF;
  END LOOP;
END $$;

-- What a role needs to work at all, and nothing more than that. The clock, and the version of the schema, are no
-- tenant's.
CREATE OR REPLACE FUNCTION clew.give_rights(_role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part record;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA clew TO %I', _role);
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA clew FROM %I', _role);
  EXECUTE format('GRANT SELECT ON clew.format TO %I', _role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION clew.now_us() TO %I', _role);
  FOR part IN
    SELECT p.oid::regprocedure AS name FROM pg_proc p
     WHERE p.pronamespace = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = 'clew.threads'::regclass)
       AND p.prosecdef
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
  SELECT quote_ident(_role)::regrole, n.no FROM clew.namespaces n WHERE n.name = _namespace
  ON CONFLICT (role, space) DO NOTHING;
  PERFORM clew.give_rights(_role);
END $$;

-- With the last namespace the rights go too.
CREATE OR REPLACE FUNCTION clew.revoke_namespace(_role name, _namespace text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM clew.grants g USING clew.namespaces n
   WHERE n.no = g.space AND n.name = _namespace AND g.role = quote_ident(_role)::regrole;
  IF NOT EXISTS (SELECT 1 FROM clew.grants g WHERE g.role = quote_ident(_role)::regrole) THEN
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA clew FROM %I', _role);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA clew FROM %I', _role);
    EXECUTE format('REVOKE ALL ON SCHEMA clew FROM %I', _role);
  END IF;
END $$;

REVOKE ALL ON FUNCTION clew.give_rights(name), clew.grant_namespace(name, text), clew.revoke_namespace(name, text)
  FROM PUBLIC;

-- What was granted to a role that was dropped is taken back, before its number is given to another one.
DELETE FROM clew.grants g WHERE NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.oid = g.role);

-- Functions that came later are for those too who were granted a namespace before. A role that has lost its rights,
-- or never had any, does not get them by this: it must be granted a namespace anew.
SELECT clew.give_rights(r.rolname) FROM pg_roles r
 WHERE EXISTS (SELECT 1 FROM clew.grants g WHERE g.role = r.oid)
   AND EXISTS (SELECT 1 FROM pg_namespace n, aclexplode(n.nspacl) AS a
                WHERE n.oid = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = 'clew.threads'::regclass)
                  AND a.grantee = r.oid AND a.privilege_type = 'USAGE');
