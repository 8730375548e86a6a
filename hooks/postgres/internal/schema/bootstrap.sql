-- What has to be there before the first migration. It may be run again.
--
-- The roles are those of the whole server. paddock_owner owns all, so that no function is run
-- with the rights of a superuser; nobody logs in as it.
do $$
declare
    role text;
begin
    foreach role in array array['paddock_owner', 'paddock_submit', 'paddock_host', 'paddock_read', 'paddock_admin'] loop
        if not exists (select from pg_roles where rolname = role) then
            execute format('create role %I nologin', role);
        end if;
    end loop;
    if not pg_has_role('paddock_owner', 'member') then
        execute format('grant paddock_owner to %I', current_user);
    end if;
end $$;
create schema if not exists paddock authorization paddock_owner;
set local role paddock_owner;
grant usage on schema paddock to paddock_submit, paddock_host, paddock_read, paddock_admin;
create table if not exists paddock.migration (number integer primary key, at timestamptz not null default now());
