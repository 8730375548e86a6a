-- The queue: its tables, and the functions that are all that anybody may call.
--
-- Whoever calls a function has no right to a table. A function is run with the rights of
-- paddock_owner, and looks at session_user, which neither SET ROLE nor another function
-- changes.

create table meta (
    one          boolean primary key default true check (one),
    -- Part of the identity of each run: a report of another database is told by it.
    installation text not null default substr(md5(gen_random_uuid()::text), 1, 8),
    ticked       timestamptz not null default '-infinity',
    expires      timestamptz not null default '-infinity' -- no lease is over before
);
insert into meta default values;

create table queue (
    name          text primary key check (name ~ '^[A-Za-z0-9._-]{1,64}$'),
    paused        boolean not null default false,
    -- The seconds of waiting that one priority is worth. Null: priority alone decides, and age
    -- among equals.
    weight        integer default 3600 check (weight between 0 and 31536000),
    lease         interval not null default '300 s' check (lease between '10 s' and '30 days'),
    -- What work may take to end after its lease.
    grace         interval not null default '60 s' check (grace between '0 s' and '1 day'),
    max_attempts  smallint not null default 1 check (max_attempts between 1 and 1000),
    max_evictions smallint not null default 20 check (max_evictions between 0 and 10000),
    max_refusals  smallint not null default 20 check (max_refusals between 1 and 1000),
    backoff       interval not null default '60 s' check (backoff between '0 s' and '1 day'),
    keep          interval not null default '90 days' check (keep > '0 s' and keep <= '1000 years') -- a time before the first year is none
);
insert into queue (name) values ('default');

-- Jobs of a class are equal to who has to place them: queue, owner, and all attributes of their
-- ads that a slot is chosen by. What fits a slot is decided once for each class, and the
-- next job is found by one probe of an index for each class, however many jobs wait.
create table class (
    id        integer generated always as identity primary key,
    xid       xid8 not null default pg_current_xact_id(), -- so that hosts read those that are new
    sig       bytea not null unique,
    queue     text not null references queue,
    owner     text not null,
    cpus      integer not null,
    memory_mb bigint not null,
    disk_kb   bigint not null,
    gpus      integer not null,
    seconds   bigint, -- null: it did not say how long it runs
    ad        text not null -- these attributes
);
create index on class (xid);
create index on class (queue);

create table job (
    id           bigint generated always as identity primary key,
    class        integer not null,
    owner        text not null,
    queue        text not null,
    submitted    timestamptz not null default clock_timestamp(),
    priority     integer not null check (priority between -10000 and 10000),
    rank         bigint not null, -- of its row in ready: the smallest is next
    run_after    timestamptz,
    max_attempts smallint, -- null: that of the queue
    attempts     smallint not null default 0,
    evictions    smallint not null default 0,
    refusals     smallint not null default 0,
    once         boolean not null default false, -- it is not run again once it may have begun
    batch        text,
    dedup        text,
    state        text not null default 'queued' check (state in ('queued', 'held', 'blocked')),
    held_by      text,
    reason       text,
    awaited      boolean not null default false, -- somebody waits, or has waited, for its end
    ad           text not null
);
create unique index on job (owner, dedup) where dedup is not null;
create index on job (batch) where batch is not null;
create index on job (class);

-- A job of state queued is in one of these three, and nothing is written to job when it goes
-- from one to the next. They are narrow, since their rows come and go.
create table ready (class integer, rank bigint, id bigint, primary key (class, rank, id));
create table waiting (id bigint primary key, run_after timestamptz not null);
create index on waiting (run_after);
create sequence gen;
create table lease (
    job         bigint primary key,
    class       integer not null,
    gen         bigint not null, -- the fence: no other run has it, ever
    host        text not null,
    slot        text not null,
    login       name not null default session_user,
    term        interval not null,
    grace       interval not null,
    accepted    boolean not null default false,
    accepted_at timestamptz,
    cancel      text, -- why it is to end
    given       timestamptz not null default clock_timestamp(),
    until       timestamptz not null -- not in an index, so that a renewal is a small write
) with (fillfactor = 50);
create index on lease (host, slot, gen) where not accepted;

-- Ends of runs that were told while somebody kept the job locked: they count as soon as it is not. Their leases do not end before.
create table told (job bigint, gen bigint, word text not null, result jsonb not null, primary key (job, gen));

create table depend (
    job     bigint,
    on_job  bigint,
    only_ok boolean not null, -- it has to succeed
    primary key (job, on_job)
);
create index on depend (on_job);

create table done (
    id            bigint not null,
    gen           bigint,
    owner         text not null,
    queue         text not null,
    class         integer not null,
    batch         text,
    priority      integer not null,
    outcome       text not null check (outcome in ('ok', 'dead', 'cancelled', 'deleted', 'lost')),
    exit_code     integer,
    signal        integer,
    reason        text,
    submitted     timestamptz not null,
    started       timestamptz,
    finished      timestamptz not null default clock_timestamp(),
    cpu_s         double precision,
    max_memory_kb bigint,
    host          text,
    slot          text,
    attempts      smallint not null,
    evictions     smallint not null,
    max_attempts  smallint,
    once          boolean not null,
    result        jsonb,
    ad            text not null
) partition by range (finished);
create index on done (id);
create index on done (owner, finished);
create index on done (finished);
create table done_default partition of done default;

create table event (
    at   timestamptz not null default clock_timestamp(),
    what text not null,
    job  bigint,
    gen  bigint,
    host text,
    text text
) partition by range (at);
create index on event (job);
create table event_default partition of event default;

-- A host says at each start what it is, so that nothing of it has to survive a crash.
create unlogged table host (
    name    text primary key,
    login   name not null default session_user,
    version text not null,
    queues  text[] not null, -- empty: all
    idle    boolean not null default false, -- a question of it waits for work
    since   timestamptz not null default clock_timestamp(),
    seen    timestamptz not null default clock_timestamp()
);

-- Rows of these go as fast as they come.
alter table ready set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table lease set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
alter table waiting set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table job set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-------------------------------------------------------------------------------------------
-- Who may what.

create function is_admin() returns boolean language sql stable
    return pg_has_role(session_user, 'paddock_admin', 'member');

create function may_read() returns boolean language sql stable
    return pg_has_role(session_user, 'paddock_read', 'member') or pg_has_role(session_user, 'paddock_admin', 'member');

create procedure must_own(owner text, id bigint) language plpgsql as $$
begin
    if must_own.owner <> session_user and not is_admin() then
        raise insufficient_privilege using message = format('job %s is %s''s', must_own.id, must_own.owner);
    end if;
end $$;

-------------------------------------------------------------------------------------------
-- Ads. Only what a slot is chosen by is read here, and only as text: ClassAds are evaluated
-- by who serves a host, which lays the columns of class over the ad that it hands out. So
-- whoever writes an ad that is read differently there harms his own job alone.

create function attributes(ad text) returns table (name text, expr text)
    language plpgsql immutable as $$
declare
    line text;
    n    integer := 0;
    at   integer;
begin
    foreach line in array string_to_array(attributes.ad, E'\n') loop
        n := n + 1;
        line := btrim(line, E' \t\r');
        continue when line = '' or left(line, 1) = '#';
        at := position('=' in line);
        name := lower(rtrim(left(line, at - 1), E' \t'));
        expr := ltrim(substr(line, at + 1), E' \t');
        if at = 0 or name !~ '^[a-z_][a-z0-9_]*$' or length(name) > 128 or expr = '' then
            raise invalid_parameter_value using message = format('the ad: line %s is no attribute = expression', n);
        end if;
        return next;
    end loop;
end $$;

create function whole_number(attrs jsonb, name text, otherwise bigint, most bigint) returns bigint
    language plpgsql immutable as $$
declare
    expr text := attrs ->> lower(name);
begin
    if expr is null then
        return otherwise;
    end if;
    if expr !~ '^[0-9]{1,15}$' or expr::bigint > most then
        raise invalid_parameter_value using message = format('the ad: %s is no whole number up to %s', name, most);
    end if;
    return expr::bigint;
end $$;

-- chosen_by returns the attributes that a slot is chosen by: requests, Requirements and
-- whatever that names, however far away.
create function chosen_by(attrs jsonb) returns text language plpgsql immutable as $$
declare
    names text[] := array(select key from jsonb_object_keys(attrs) key where key ~ '^request[a-z0-9_]' or key in ('requirements', 'jobuniverse'));
    more  text[] := names;
begin
    while cardinality(more) > 0 loop
        more := array(
            select distinct lower(word[1])
            from unnest(more) name, regexp_matches(attrs ->> name, '[A-Za-z_][A-Za-z0-9_]*', 'g') word
            where attrs ? lower(word[1]) and lower(word[1]) <> all (names || array['script', 'owner']));
        names := names || more;
    end loop;
    return (select string_agg(name || ' = ' || (attrs ->> name), E'\n' order by name) from unnest(names) name);
end $$;

create function class_of(queue text, owner text, ad text) returns integer language plpgsql as $$
#variable_conflict use_column
declare
    attrs jsonb;
    part  text;
    mark  bytea;
    known integer;
begin
    if octet_length(class_of.ad) > 70000000 then
        raise invalid_parameter_value using message = 'the ad has more than 70000000 bytes';
    end if;
    attrs := (select coalesce(jsonb_object_agg(name, expr), '{}') from attributes(class_of.ad)); -- the last of a name counts
    if not attrs ? 'cmd' and not attrs ? 'script' then
        raise invalid_parameter_value using message = 'the ad has neither Cmd nor Script';
    end if;
    part := coalesce(chosen_by(attrs), '');
    if octet_length(part) > 16384 then
        raise invalid_parameter_value using message = 'the ad: what Requirements refers to has more than 16384 bytes';
    end if;
    mark := sha256(convert_to(class_of.queue || E'\n' || class_of.owner || E'\n' || part, 'UTF8'));
    select id into known from class where sig = mark;
    if known is not null then
        return known;
    end if;
    if (select count(*) from class c where c.queue = class_of.queue) >= 2000 then
        raise program_limit_exceeded using
            message = format('queue %s has 2000 classes of jobs that differ in what they request', class_of.queue),
            hint = 'Round requests and let Requirements name nothing that each job has of its own; see paddock-pg prune.';
    end if;
    insert into class (sig, queue, owner, cpus, memory_mb, disk_kb, gpus, seconds, ad)
    values (mark, class_of.queue, class_of.owner,
        greatest(whole_number(attrs, 'RequestCpus', 1, 1000000), 1), whole_number(attrs, 'RequestMemory', 1, 1000000000000),
        whole_number(attrs, 'RequestDisk', 1, 1000000000000), whole_number(attrs, 'RequestGPUs', 0, 1000000),
        whole_number(attrs, 'RequestSeconds', case when attrs ->> 'requesth_rt' ~ '^[0-9]{1,12}$' then (attrs ->> 'requesth_rt')::bigint end,
            1000000000000), part)
    on conflict (sig) do nothing
    returning id into known;
    if known is null then
        select id into known from class where sig = mark;
    end if;
    return known;
end $$;

create function rank_of(queue text, priority integer, submitted timestamptz) returns bigint language sql stable
    -- Milliseconds; without a weight one priority is more than all time.
    return (select (extract(epoch from rank_of.submitted) * 1000)::bigint
                - rank_of.priority * coalesce(q.weight * 1000::bigint, 100000000000000)
            from queue q where q.name = rank_of.queue);

-------------------------------------------------------------------------------------------
-- The ways of a job.

create procedure note(what text, job bigint, gen bigint, host text, text text) language sql
    begin atomic
        insert into event (what, job, gen, host, text) values (note.what, note.job, note.gen, note.host, note.text);
    end;

-- enqueue puts a job to where it waits.
create procedure enqueue(j job) language plpgsql as $$
begin
    if j.state = 'held' then
        return;
    end if;
    if exists (select from depend d where d.job = j.id) then
        update job set state = 'blocked' where id = j.id;
        return;
    end if;
    if j.state <> 'queued' then
        update job set state = 'queued' where id = j.id;
    end if;
    if j.run_after > clock_timestamp() then
        insert into waiting (id, run_after) values (j.id, j.run_after);
    else
        insert into ready (class, rank, id) values (j.class, j.rank, j.id);
    end if;
end $$;

-- dequeue takes a job, whose row is locked, from where it waits. False: a host has it.
create function dequeue(j job) returns boolean language plpgsql as $$
begin
    -- In the order in which it goes from one to the next meanwhile.
    delete from waiting w where w.id = j.id;
    delete from ready r where r.class = j.class and r.rank = j.rank and r.id = j.id;
    return not exists (select from lease l where l.job = j.id);
end $$;

-- finish ends a job for good, and with it those that need it to succeed.
create procedure finish(j job, l lease, outcome text, reason text, result jsonb) language plpgsql as $$
#variable_conflict use_column
declare
    failed bigint[] := '{}'; -- jobs that are to end, too
    causes bigint[] := '{}'; -- because of these
    other  job;
begin
    loop
        insert into done (id, gen, owner, queue, class, batch, priority, outcome, exit_code, signal, reason, submitted, started,
            cpu_s, max_memory_kb, host, slot, attempts, evictions, max_attempts, once, result, ad)
        values (j.id, l.gen, j.owner, j.queue, j.class, j.batch, j.priority, finish.outcome, (finish.result ->> 'ExitCode')::integer,
            (finish.result ->> 'ExitSignal')::integer, finish.reason, j.submitted, l.accepted_at,
            (finish.result ->> 'RemoteUserCpu')::double precision + (finish.result ->> 'RemoteSysCpu')::double precision,
            coalesce((finish.result ->> 'ResidentSetSize')::bigint, (finish.result ->> 'ImageSize')::bigint),
            l.host, l.slot, j.attempts, j.evictions, j.max_attempts, j.once, finish.result, j.ad);
        delete from job where id = j.id;
        if j.awaited then
            perform pg_notify('paddock_over', j.id::text);
        end if;
        delete from depend d where d.job = j.id;
        -- submit locks a job that another is to wait for, so that none is entered from here on. A job that
        -- waits for another has the higher number, and jobs are locked in that order.
        for other in
            select o.* from job o join depend d on d.job = o.id where d.on_job = j.id order by o.id for update of o
        loop
            if finish.outcome <> 'ok' and (select d.only_ok from depend d where d.job = other.id and d.on_job = j.id) then
                failed := failed || other.id;
                causes := causes || j.id;
            end if;
            delete from depend d where d.job = other.id and d.on_job = j.id;
            if other.state = 'blocked' and other.id <> all (failed) then
                call enqueue(other);
            end if;
        end loop;
        loop
            if cardinality(failed) = 0 then
                return;
            end if;
            select o.* into j from job o where o.id = failed[1] for update;
            finish.reason := format('job %s, which it needs, did not succeed', causes[1]);
            failed := failed[2:];
            causes := causes[2:];
            exit when j.id is not null;
        end loop;
        finish.outcome := 'cancelled';
        finish.result := null;
        l := null;
    end loop;
end $$;

-- come_back has a job wait again.
create procedure come_back(j job, delay interval) language plpgsql as $$
begin
    j.run_after := clock_timestamp() + delay; -- not later than now without one
    update job set run_after = j.run_after, attempts = j.attempts, evictions = j.evictions, refusals = j.refusals,
        state = j.state, held_by = j.held_by, reason = j.reason where id = j.id;
    call enqueue(j);
end $$;

-- evicted has a job that did not come to its end wait again, at the rank that it had.
create procedure evicted(j job, l lease, reason text, began boolean, result jsonb) language plpgsql as $$
declare
    q queue;
begin
    if l.cancel is not null then
        call finish(j, l, 'cancelled', l.cancel, result);
        return;
    end if;
    select * into strict q from queue where name = j.queue;
    if began and j.once then
        call finish(j, l, 'lost', evicted.reason, result);
        return;
    end if;
    if began then
        j.evictions := j.evictions + 1;
        j.refusals := 0;
        if j.evictions > q.max_evictions then
            call finish(j, l, 'dead', format('evicted %s times, the last time: %s', j.evictions, evicted.reason), result);
            return;
        end if;
        call come_back(j, '0 s');
        return;
    end if;
    -- It was not taken, or could not be begun. Others may have more luck, but not all of them
    -- at once again and again.
    j.refusals := j.refusals + 1;
    if j.refusals >= q.max_refusals then
        j.state := 'held';
        j.held_by := 'paddock';
        j.reason := format('refused %s times, the last time by %s on %s: %s', j.refusals, l.slot, l.host, evicted.reason);
        j.refusals := 0;
    end if;
    call come_back(j, case when j.refusals < 3 then '0 s'::interval else least(interval '10 s', q.backoff) end);
end $$;

-------------------------------------------------------------------------------------------
-- For who submits.

-- must_be says what is wrong with what submitters set.
create procedure must_be(priority integer, max_attempts integer, batch text, dedup text) language plpgsql as $$
declare
    wrong text := case
        when must_be.priority not between -10000 and 10000 then 'a priority is -10000 to 10000'
        when must_be.max_attempts not between 1 and 1000 then 'a job may be tried 1 to 1000 times'
        when length(must_be.batch) > 200 or length(must_be.dedup) > 200 then 'batch or dedup has more than 200 characters'
    end;
begin
    if wrong is not null then
        raise invalid_parameter_value using message = wrong;
    end if;
end $$;

create function submit(ad text, queue text default 'default', priority integer default 0, after timestamptz default null,
    dedup text default null, batch text default null, after_any bigint[] default '{}', after_ok bigint[] default '{}',
    hold boolean default false, max_attempts integer default null, once boolean default false, owner text default null)
    returns bigint language plpgsql as $$
#variable_conflict use_column
declare
    j      job;
    needed bigint;
    whose  text;
    ended  text;
begin
    j.owner := coalesce(submit.owner, session_user);
    if j.owner <> session_user and not is_admin() then
        raise insufficient_privilege using message = format('%s may not submit jobs of %s', session_user, j.owner);
    end if;
    if j.owner !~ '^[A-Za-z_][A-Za-z0-9._-]{0,63}$' or j.owner = 'root' then
        raise invalid_parameter_value using message = format('no job runs as %s', quote_ident(j.owner));
    end if;
    call must_be(submit.priority, submit.max_attempts, submit.batch, submit.dedup);
    if not exists (select from queue q where q.name = submit.queue) then
        raise invalid_parameter_value using message = format('there is no queue "%s"', submit.queue);
    end if;
    j.class := class_of(submit.queue, j.owner, submit.ad);
    j.submitted := clock_timestamp();
    insert into job (class, owner, queue, submitted, priority, rank, run_after, max_attempts, once, batch, dedup, state, held_by, ad)
    values (j.class, j.owner, submit.queue, j.submitted, submit.priority, rank_of(submit.queue, submit.priority, j.submitted),
        submit.after, submit.max_attempts, submit.once, submit.batch, submit.dedup,
        case when submit.hold then 'held' else 'queued' end, case when submit.hold then session_user end, submit.ad)
    on conflict (owner, dedup) where dedup is not null do nothing
    returning * into j;
    if j.id is null then
        select o.id into j.id from job o where o.owner = coalesce(submit.owner, session_user) and o.dedup = submit.dedup;
        if not found then
            raise serialization_failure using message = format('the job of dedup "%s" has ended meanwhile; submit it again', submit.dedup);
        end if;
        return j.id;
    end if;
    foreach needed in array submit.after_any || submit.after_ok loop
        -- A lock that keeps it from ending until this is committed.
        select o.owner into whose from job o where o.id = needed for key share;
        if found then
            call must_own(whose, needed);
            insert into depend (job, on_job, only_ok) values (j.id, needed, needed = any (submit.after_ok)) on conflict do nothing;
            continue;
        end if;
        select d.owner, d.outcome into whose, ended from done d where d.id = needed order by d.finished desc limit 1;
        if not found then
            raise invalid_parameter_value using message = format('there is no job %s to wait for', needed);
        end if;
        call must_own(whose, needed);
        if needed = any (submit.after_ok) and ended <> 'ok' then
            raise invalid_parameter_value using message = format('job %s, which it needs, did not succeed', needed);
        end if;
    end loop;
    call enqueue(j);
    -- prune may have removed the class before it saw this job.
    if not exists (select from class c where c.id = j.class) then
        raise serialization_failure using message = 'the class of the job was removed meanwhile; submit it again';
    end if;
    return j.id;
end $$;

create function submit_many(ads text[], queue text default 'default', priority integer default 0, after timestamptz default null,
    batch text default null, after_any bigint[] default '{}', after_ok bigint[] default '{}', hold boolean default false,
    max_attempts integer default null, once boolean default false, owner text default null)
    returns setof bigint language sql volatile as $$
    select submit(a.ad, submit_many.queue, submit_many.priority, submit_many.after, null, submit_many.batch, submit_many.after_any,
        submit_many.after_ok, submit_many.hold, submit_many.max_attempts, submit_many.once, submit_many.owner)
    from unnest(submit_many.ads) with ordinality a(ad, n) order by a.n
$$;

-- Locks are taken in the order of the jobs' numbers.
create function cancel(ids bigint[]) returns table (id bigint, what text) language plpgsql as $$
#variable_conflict use_column
declare
    j job;
    l lease;
begin
    for id in select distinct i from unnest(cancel.ids) i order by i loop
        select * into j from job o where o.id = cancel.id for update;
        if not found then
            what := 'not there';
        else
            call must_own(j.owner, j.id);
            if dequeue(j) then
                call finish(j, null, 'cancelled', format('cancelled by %s', session_user), null);
                what := 'cancelled';
            else
                update lease set cancel = coalesce(cancel, format('cancelled by %s', session_user)) where job = j.id returning * into l;
                perform pg_notify('paddock_cancel', l.host || E'\t' || l.slot);
                what := 'told';
            end if;
        end if;
        return next;
    end loop;
end $$;

create function hold(ids bigint[]) returns table (id bigint, what text) language plpgsql as $$
#variable_conflict use_column
declare
    j job;
begin
    for id in select distinct i from unnest(hold.ids) i order by i loop
        select * into j from job o where o.id = hold.id for update;
        if not found then
            what := 'not there';
        else
            call must_own(j.owner, j.id);
            what := case when dequeue(j) then 'held' else 'held when it comes back' end;
            update job o set state = 'held', held_by = session_user, reason = null where o.id = j.id;
        end if;
        return next;
    end loop;
end $$;

create function release(ids bigint[]) returns table (id bigint, what text) language plpgsql as $$
#variable_conflict use_column
declare
    j job;
begin
    for id in select distinct i from unnest(release.ids) i order by i loop
        select * into j from job o where o.id = release.id for update;
        if not found then
            what := 'not there';
        elsif j.state <> 'held' then
            call must_own(j.owner, j.id);
            what := 'not held';
        else
            call must_own(j.owner, j.id);
            if j.held_by not in (j.owner, 'paddock') and not is_admin() then
                raise insufficient_privilege using message = format('job %s is held by %s', j.id, j.held_by);
            end if;
            update job o set state = 'queued', held_by = null, reason = null where o.id = j.id returning * into j;
            if not exists (select from lease l where l.job = j.id) then
                call enqueue(j);
            end if;
            what := 'released';
        end if;
        return next;
    end loop;
end $$;

-- Null leaves a value as it is; after may be -infinity.
create function alter(id bigint, priority integer default null, after timestamptz default null, max_attempts integer default null,
    batch text default null) returns text language plpgsql as $$
#variable_conflict use_column
declare
    j    job;
    idle boolean;
begin
    select * into j from job o where o.id = alter.id for update;
    if not found then
        return 'not there';
    end if;
    call must_own(j.owner, j.id);
    call must_be(alter.priority, alter.max_attempts, alter.batch, null);
    idle := dequeue(j);
    update job o set priority = coalesce(alter.priority, o.priority), run_after = coalesce(alter.after, o.run_after),
        max_attempts = coalesce(alter.max_attempts, o.max_attempts), batch = coalesce(alter.batch, o.batch),
        rank = rank_of(o.queue, coalesce(alter.priority, o.priority), o.submitted)
        where o.id = j.id returning * into j;
    if idle then
        call enqueue(j);
    end if;
    return 'altered';
end $$;

-- A job that is over is run again, with its number; one that waits for its time need not.
create function retry(id bigint) returns text language plpgsql as $$
#variable_conflict use_column
declare
    j job;
    d done;
begin
    select * into j from job o where o.id = retry.id for update;
    if found then
        call must_own(j.owner, j.id);
        if not dequeue(j) then
            return 'running';
        end if;
        if j.state = 'held' and j.held_by not in (j.owner, 'paddock') and not is_admin() then
            raise insufficient_privilege using message = format('job %s is held by %s', j.id, j.held_by);
        end if;
        update job o set run_after = null, state = 'queued', held_by = null, reason = null, attempts = 0, evictions = 0, refusals = 0
            where o.id = j.id returning * into j;
        call enqueue(j);
        return 'ready';
    end if;
    select * into d from done o where o.id = retry.id order by o.finished desc limit 1;
    if not found then
        return 'not there';
    end if;
    call must_own(d.owner, d.id);
    insert into job (id, class, owner, queue, priority, rank, max_attempts, once, batch, ad) overriding system value
    values (d.id, class_of(d.queue, d.owner, d.ad), d.owner, d.queue, d.priority, rank_of(d.queue, d.priority, clock_timestamp()),
        d.max_attempts, d.once, d.batch, d.ad)
    returning * into j;
    call enqueue(j);
    return 'ready';
end $$;

-- jobs lists jobs that are not over: one's own, or all to who may read them.
create function jobs(of_owner text default null, of_batch text default null, ids bigint[] default null)
    returns table (id bigint, owner text, queue text, state text, priority integer, submitted timestamptz, started timestamptz,
        host text, slot text, run_after timestamptz, attempts integer, evictions integer, batch text, reason text, name text, cpus integer)
    language plpgsql stable as $$
#variable_conflict use_column
declare
    whose text := case when may_read() then jobs.of_owner else session_user end;
begin
    return query
    select j.id, j.owner, j.queue,
        case when l.cancel is not null then 'cancelled' when l.accepted then 'running' when l.job is not null then 'given'
            when j.state <> 'queued' then j.state when w.id is not null then 'waiting' else 'ready' end,
        j.priority, j.submitted, l.accepted_at, l.host, l.slot, w.run_after, j.attempts::integer, j.evictions::integer, j.batch,
        coalesce(l.cancel, j.reason),
        substring(left(j.ad, 20000) from '(?in)^\s*JobBatchName\s*=\s*"([^"\n]*)"'), c.cpus
    from job j left join lease l on l.job = j.id left join waiting w on w.id = j.id left join class c on c.id = j.class
    where (whose is null or j.owner = whose) and (jobs.of_batch is null or j.batch = jobs.of_batch)
        and (jobs.ids is null or j.id = any (jobs.ids))
    order by j.id;
end $$;

create function status(job bigint)
    returns table (id bigint, owner text, queue text, state text, outcome text, exit_code integer, signal integer, reason text,
        attempts integer, evictions integer, host text, slot text, submitted timestamptz, started timestamptz, finished timestamptz,
        result jsonb)
    language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select s.id, s.owner, s.queue, s.state, null::text, null::integer, null::integer, s.reason, s.attempts, s.evictions, s.host, s.slot,
        s.submitted, s.started, null::timestamptz, null::jsonb
    from jobs(ids => array[status.job]) s
    union all
    (select d.id, d.owner, d.queue, 'over', d.outcome, d.exit_code, d.signal, d.reason, d.attempts::integer, d.evictions::integer,
        d.host, d.slot, d.submitted, d.started, d.finished, d.result
    from done d where d.id = status.job and (d.owner = session_user or may_read())
        and not exists (select from job j where j.id = status.job)
    order by d.finished desc limit 1);
end $$;

-- await has the end of jobs told to who listens to paddock_over. One that is about to end has ended
-- when it returns.
create function await(ids bigint[]) returns void language plpgsql as $$
#variable_conflict use_column
begin
    update job j set awaited = true where j.id = any (await.ids) and not j.awaited and (j.owner = session_user or may_read());
end $$;

-------------------------------------------------------------------------------------------
-- For hosts.

create function about() returns table (installation text, schema integer) language sql stable as $$
    select m.installation, (select max(number) from migration) from meta m
$$;

create function hello(host text, version text, queues text[]) returns void language plpgsql as $$
#variable_conflict use_column
begin
    if length(hello.host) not between 1 and 255 or hello.host ~ '\s' then
        raise invalid_parameter_value using message = 'the host has no name';
    end if;
    insert into host (name, version, queues) values (hello.host, left(hello.version, 100), hello.queues)
    on conflict (name) do update set login = session_user, version = excluded.version, queues = excluded.queues, idle = false,
        since = clock_timestamp(), seen = clock_timestamp();
end $$;

-- idle says whether a question of the host waits for work, and returns how many hosts have one that does.
-- Null: the host is to say hello.
create function idle(host text, idle boolean) returns integer language plpgsql as $$
#variable_conflict use_column
begin
    update host h set idle = idle.idle, seen = clock_timestamp() where h.name = idle.host and h.login = session_user;
    if not found then
        return null;
    end if;
    return (select count(*) from host h where h.idle);
end $$;

create function bye(host text) returns void language sql
    begin atomic
        delete from host h where h.name = bye.host and h.login = session_user;
    end;

-- classes returns those that may have come since an earlier answer, whose seen is passed.
create function classes(since xid8)
    returns table (id integer, queue text, owner text, cpus integer, memory_mb bigint, disk_kb bigint, gpus integer, seconds bigint,
        ad text, seen xid8)
    language sql stable as $$
    select c.id, c.queue, c.owner, c.cpus, c.memory_mb, c.disk_kb, c.gpus, c.seconds, c.ad, pg_snapshot_xmin(pg_current_snapshot())
    from class c where c.xid >= classes.since
$$;

-- give gives a slot the first job of a class that no other takes, from a rank on. Null: there is none.
create function give(host text, slot text, class integer, low bigint) returns lease language plpgsql as $$
#variable_conflict use_column
declare
    taken bigint;
    l     lease;
begin
    delete from ready r where r.ctid = (
        select f.ctid from ready f where f.class = give.class and f.rank >= give.low order by f.rank, f.id limit 1 for update skip locked)
    returning r.id into taken;
    if taken is not null then
        -- It may be accepted late, and its lease begins then.
        insert into lease (job, class, gen, host, slot, term, grace, until)
        select j.id, j.class, nextval('gen'), give.host, give.slot, q.lease, q.grace, clock_timestamp() + q.lease + interval '120 s'
        from job j join queue q on q.name = j.queue where j.id = taken
        returning * into l;
    end if;
    return l;
end $$;

-- claim gives a slot the first job of those classes that it may have. Low is a rank of each class
-- before which there is nothing: dead entries of the index there, which a transaction that is
-- held open keeps from being removed, are not read again and again.
create function claim(host text, slot text, classes integer[], lows bigint[])
    returns table (job bigint, gen bigint, class integer, rank bigint, owner text, queue text, term integer, attempts integer,
        evictions integer, ad text)
    language plpgsql as $$
#variable_conflict use_column
declare
    without integer[]; -- classes of paused queues, and those of which others take all that there is
    best    integer;
    low     bigint;
    l       lease;
begin
    -- What it was given and has not accepted is its again, with its fence.
    select * into l from lease o where o.host = claim.host and o.slot = claim.slot and not o.accepted and o.login = session_user
        and o.cancel is null limit 1 for update;
    if l.job is null and exists (select from queue q where q.paused) then
        without := array(select c.id from class c join queue q on q.name = c.queue where q.paused);
    end if;
    for attempt in 1..4 loop
        exit when l.job is not null;
        select c.id, c.low into best, low
        from unnest(claim.classes, claim.lows) c(id, low)
            cross join lateral (select r.rank, r.id from ready r where r.class = c.id and r.rank >= c.low order by r.rank, r.id limit 1) h
        where without is null or c.id <> all (without)
        order by h.rank, h.id limit 1;
        if best is null then
            return;
        end if;
        l := give(claim.host, claim.slot, best, low);
        if l.job is null then
            without := without || best;
        end if;
    end loop;
    return query
    select j.id, l.gen, j.class, j.rank, j.owner, j.queue, extract(epoch from l.term)::integer, j.attempts::integer, j.evictions::integer, j.ad
    from job j where j.id = l.job;
end $$;

-- claim_many is claim of several slots that may have the same classes. The first row may have new lows. Gens are of each slot
-- the number of the last run that it was given, so that those before it are not looked at: that is for later versions.
create function claim_many(host text, slots text[], classes integer[], lows bigint[], gens bigint[] default '{}')
    returns table (slot text, job bigint, gen bigint, class integer, rank bigint, owner text, queue text, term integer,
        attempts integer, evictions integer, ad text, heads bigint[])
    language plpgsql as $$
#variable_conflict use_column
begin
    return query select s.slot, c.*, null::bigint[]
    from unnest(claim_many.slots) s(slot) cross join lateral claim(claim_many.host, s.slot, claim_many.classes, claim_many.lows) c;
end $$;

create function accept(job bigint, gen bigint, host text) returns boolean language plpgsql as $$
#variable_conflict use_column
begin
    update lease l set accepted = true, accepted_at = coalesce(l.accepted_at, clock_timestamp()), until = clock_timestamp() + l.term
    where l.job = accept.job and l.gen = accept.gen and l.host = accept.host and l.login = session_user;
    return found;
end $$;

-- accept_many is accept of several runs. N is the place in the arrays.
create function accept_many(jobs bigint[], gens bigint[], hosts text[]) returns table (n bigint, accepted boolean) language plpgsql as $$
#variable_conflict use_column
begin
    return query select r.n, accept(r.job, r.gen, r.host)
    from (select * from unnest(jobs, gens, hosts) with ordinality u(job, gen, host, n) order by job, gen) r;
end $$;

-- taken takes the lease of a run away from a host that has it, and returns its job.
create function taken(job bigint, gen bigint, host text, what text, out j job, out l lease) language plpgsql as $$
#variable_conflict use_column
begin
    -- The job is locked first, as everywhere.
    select o.* into j from job o where o.id = taken.job for update;
    delete from lease o where o.job = taken.job and o.gen = taken.gen and o.host = taken.host and o.login = session_user returning o.* into l;
    if l.job is null then
        j := null;
        -- One that is told again was heard; the end of one that was lost was not.
        if not exists (select from event e where e.job = taken.job and e.gen = taken.gen and e.host = taken.host and e.what <> 'lost')
            and not exists (select from done d where d.id = taken.job and d.gen = taken.gen and d.host = taken.host) then
            call note('stale', taken.job, taken.gen, taken.host, taken.what);
        end if;
    end if;
end $$;

create function refuse(job bigint, gen bigint, host text, reason text default null) returns boolean language plpgsql as $$
#variable_conflict use_column
declare
    t record;
    j job;
    l lease;
begin
    -- A refusal that comes after the acceptance is of an earlier question.
    perform from lease o where o.job = refuse.job and o.gen = refuse.gen and not o.accepted;
    if not found then
        return false;
    end if;
    t := taken(refuse.job, refuse.gen, refuse.host, 'refuse');
    j := t.j;
    l := t.l;
    if l.job is null then
        return false;
    end if;
    call note('refused', l.job, l.gen, l.host, refuse.reason);
    call evicted(j, l, coalesce(refuse.reason, 'see its log'), false, null);
    return true;
end $$;

-- renew says whether the work is to go on.
create function renew(job bigint, gen bigint, host text) returns text language plpgsql as $$
#variable_conflict use_column
declare
    l lease;
begin
    update lease o set until = case when o.cancel is null then clock_timestamp() + o.term else o.until end, accepted = true,
        accepted_at = coalesce(o.accepted_at, clock_timestamp())
    where o.job = renew.job and o.gen = renew.gen and o.host = renew.host and o.login = session_user
    returning * into l;
    return case when l.job is null then 'stale' when l.cancel is not null then 'cancelled' else 'renewed' end;
end $$;

create function evict(job bigint, gen bigint, host text, reason text, began boolean default true, result jsonb default null)
    returns text language plpgsql as $$
#variable_conflict use_column
declare
    t record;
    j job;
    l lease;
begin
    t := taken(evict.job, evict.gen, evict.host, 'evict');
    j := t.j;
    l := t.l;
    if l.job is null then
        return 'stale';
    end if;
    call note('evicted', l.job, l.gen, l.host, evict.reason);
    call evicted(j, l, coalesce(evict.reason, 'evicted'), evict.began, evict.result);
    return 'evicted';
end $$;

-- report tells the end of a run: word is that of REPORT_WORK.
create function report(job bigint, gen bigint, host text, word text, result jsonb default '{}') returns text language plpgsql as $$
#variable_conflict use_column
declare
    t    record;
    j    job;
    l    lease;
    q    queue;
    code integer := (report.result ->> 'ExitCode')::integer;
    why  text := left(coalesce(report.result ->> 'HoldReason', report.result ->> 'VacateReason', report.result ->> 'ExitReason'), 1000);
begin
    if report.word not in ('exit', 'remove', 'hold', 'evict') then
        raise invalid_parameter_value using message = format('no end is called "%s"', report.word);
    end if;
    if report.word = 'evict' then
        return evict(report.job, report.gen, report.host, why, report.result ? 'ExitReason', report.result);
    end if;
    t := taken(report.job, report.gen, report.host, report.word);
    j := t.j;
    l := t.l;
    if l.job is null then
        return 'stale';
    end if;
    if l.accepted_at is null then
        l.accepted_at := l.given; -- the report was faster than the acceptance
    end if;
    if report.word = 'remove' then
        call finish(j, l, case when l.cancel is null then 'deleted' else 'cancelled' end, coalesce(l.cancel, why), report.result);
    elsif report.word = 'exit' and code = 0 then
        call finish(j, l, 'ok', null, report.result);
    elsif report.word = 'exit' and l.cancel is not null then
        call finish(j, l, 'cancelled', l.cancel, report.result);
    elsif report.word = 'hold' or code = 100 then
        call note('held', l.job, l.gen, l.host, coalesce(why, 'exit status 100'));
        j.state := 'held';
        j.held_by := 'paddock';
        j.reason := coalesce(why, 'exit status 100');
        call come_back(j, '0 s');
    elsif code = 99 then
        call note('again', l.job, l.gen, l.host, 'exit status 99');
        call come_back(j, '0 s');
    else
        select * into strict q from queue o where o.name = j.queue;
        j.attempts := j.attempts + 1;
        if j.attempts >= coalesce(j.max_attempts, q.max_attempts) then
            call finish(j, l, 'dead', why, report.result);
        else
            call note('failed', l.job, l.gen, l.host, why);
            j.reason := why;
            call come_back(j, least(q.backoff * 2 ^ least(j.attempts - 1, 20), interval '1 day') * (0.75 + random() / 2));
        end if;
    end if;
    return 'done';
end $$;

-- report_many is report for several runs, of which all are told or none.
create function report_many(jobs bigint[], gens bigint[], hosts text[], words text[], results text[])
    returns table (job bigint, gen bigint, answer text) language plpgsql as $$
#variable_conflict use_column
begin
    -- Jobs are locked in the order of their numbers, as everywhere.
    for job, gen, answer in
        select r.job, r.gen, report(r.job, r.gen, r.host, r.word, r.result::jsonb)
        from (select * from unnest(jobs, gens, hosts, words, results) with ordinality u(job, gen, host, word, result, n) order by job, gen, n) r
    loop
        return next;
    end loop;
end $$;

-- report_late is report_many when some job, or one that ends with it, is locked, maybe for as long as its owner likes: what cannot
-- be done now is left to tick.
create function report_late(jobs bigint[], gens bigint[], hosts text[], words text[], results text[])
    returns table (job bigint, gen bigint, answer text) language plpgsql as $$
#variable_conflict use_column
declare
    r record;
begin
    for r in select * from unnest(jobs, gens, hosts, words, results) with ordinality u(job, gen, host, word, result, n) order by job, gen, n loop
        job := r.job;
        gen := r.gen;
        begin
            answer := report(r.job, r.gen, r.host, r.word, r.result::jsonb);
        exception when lock_not_available then
            insert into told (job, gen, word, result)
            select o.job, o.gen, r.word, r.result::jsonb from lease o
            where o.job = r.job and o.gen = r.gen and o.host = r.host and o.login = session_user
            on conflict do nothing;
            answer := 'later';
        end;
        return next;
    end loop;
end $$;

-- A statement that makes work ready wakes up hosts that wait for it: none while all are busy.
create function wake() returns trigger language plpgsql as $$
begin
    if exists (select from host h where h.idle) then
        perform pg_notify('paddock_work', q.queue)
        from (select distinct c.queue from added a join class c on c.id = a.class) q
        where exists (select from host h where h.idle and (h.queues = '{}' or q.queue = any (h.queues)));
    end if;
    return null;
end $$;
create trigger wake after insert on ready referencing new table as added for each statement execute function wake();

-------------------------------------------------------------------------------------------
-- What has to be done from time to time, by whoever comes first.

-- partition_of makes the partition of a month. Rows of it that came to the default one since
-- nobody made it in time are moved.
create procedure partition_of(parent text, time_column text, month date) language plpgsql as $$
declare
    name text := format('%s_%s', parent, to_char(month, 'YYYYMM'));
    upto date := month + interval '1 month';
begin
    if to_regclass('paddock.' || name) is not null then
        return;
    end if;
    execute format('create table %I (like %I including defaults including constraints)', name, parent);
    execute format('with moved as (delete from %I where %I >= %L and %I < %L returning *) insert into %I select * from moved',
        parent || '_default', time_column, month, time_column, upto, name);
    execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, name, month, upto);
end $$;

-- Months are those of UTC, whatever the time zone of who calls: two of different zones would overlap.
create procedure partitions() language plpgsql set timezone = 'UTC' as $$
declare
    month date := date_trunc('month', clock_timestamp());
begin
    for n in 0..1 loop
        call partition_of('done', 'finished', (month + n * interval '1 month')::date);
        call partition_of('event', 'at', (month + n * interval '1 month')::date);
    end loop;
end $$;
-- Made a month before they are needed, they are in nobody's way.
call partitions();

-- alone reports whether nobody else has the lock of a table, and takes it until the transaction ends. An advisory lock
-- could be taken by everybody who may connect.
create function alone(what regclass) returns boolean language plpgsql as $$
begin
    execute format('lock table %s in share update exclusive mode nowait', what);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- tick does it, and returns the milliseconds after which there may be something again. It waits for nobody who
-- keeps a transaction open.
create function tick() returns integer language plpgsql as $$
declare
    j    job;
    l    lease;
    t    record;
    part record;
    ends timestamptz := (select m.expires from meta m);
    due  timestamptz;
    moved boolean; -- something was due
begin
    if not alone('meta') then
        return 1000;
    end if;
    -- What was to wait has waited.
    with due as materialized (
        select k.id, k.class, k.rank from waiting o join job k using (id) where o.run_after <= clock_timestamp()
        order by o.run_after limit 1000 for update skip locked),
    gone as (delete from waiting w using due d where w.id = d.id returning d.class, d.rank, d.id)
    insert into ready (class, rank, id) select gone.class, gone.rank, gone.id from gone;
    moved := found;
    for t in select o.job, o.gen, o.word, o.result, x.host from told o join lease x using (job, gen) join job k on k.id = o.job
        order by o.job limit 1000 for update of k skip locked
    loop
        begin
            update lease o set login = session_user where o.job = t.job; -- it was asked whose it is when the end was told
            perform report(t.job, t.gen, t.host, t.word, t.result);
            delete from told o where o.job = t.job and o.gen = t.gen;
        exception when lock_not_available then
            null; -- it still is
        end;
    end loop;
    -- Hosts that did not renew are lost, and what they had has ended by now. All leases are read only when one may be over:
    -- one that is new, or that begins with its acceptance, lasts for 10 s at least.
    if ends < clock_timestamp() then
        for l in select o.* from lease o join job k on k.id = o.job where o.until + o.grace < clock_timestamp()
            and not exists (select from told d where d.job = o.job and d.gen = o.gen) order by o.job limit 1000 for update of k skip locked
        loop
            begin
                select * into j from job o where o.id = l.job;
                delete from lease o where o.job = l.job and o.gen = l.gen and o.until + o.grace < clock_timestamp() returning o.* into l;
                continue when not found;
                call note('lost', l.job, l.gen, l.host, l.slot);
                call evicted(j, l, format('%s did not renew its lease', l.host), true, null);
            exception when lock_not_available then
                null; -- somebody has a job that ends with it
            end;
        end loop;
        update meta set expires = greatest(least((select min(o.until + o.grace) from lease o), clock_timestamp() + interval '10 s'),
            clock_timestamp() + interval '1 s') -- those of which somebody has the job are looked at again
            returning expires into ends;
    end if;
    if (select ticked from meta) < clock_timestamp() - interval '10 minutes' then
        update meta set ticked = clock_timestamp();
        begin
            call partitions();
            for part in
                select c.oid::regclass as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
                where i.inhparent in ('done'::regclass, 'event'::regclass) and c.relname ~ '_[0-9]{6}$'
                    and to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month' < clock_timestamp() - (select max(keep) from queue)
            loop
                execute format('drop table %s', part.name);
            end loop;
        exception when others then -- who reads them keeps them: all else is done now, and this in ten minutes
            raise warning 'partitions of paddock: %', sqlerrm;
        end;
        delete from host where seen < clock_timestamp() - interval '1 day';
    end if;
    update host set idle = false where idle and seen < clock_timestamp() - interval '5 minutes';
    select least(min(w.run_after), ends, clock_timestamp() + interval '10 s') into due from waiting w;
    -- What is due and was not done is somebody's at the moment.
    return greatest(ceil(extract(epoch from due - clock_timestamp()) * 1000), case when moved or due > clock_timestamp() then 10 else 1000 end);
end $$;

-------------------------------------------------------------------------------------------
-- For administrators.

-- set_queue makes a queue or changes it; settings has columns of queue. It returns the queue.
create function set_queue(name text, settings jsonb default '{}') returns setof queue language plpgsql as $$
#variable_conflict use_column
declare
    was  queue;
    want queue;
    key  text;
begin
    for key in select k from jsonb_object_keys(set_queue.settings) k loop
        if key not in ('paused', 'weight', 'lease', 'grace', 'max_attempts', 'max_evictions', 'max_refusals', 'backoff', 'keep') then
            raise invalid_parameter_value using message = format('a queue has no "%s"', key);
        end if;
    end loop;
    insert into queue (name) values (set_queue.name) on conflict do nothing;
    select * into strict was from queue q where q.name = set_queue.name for update;
    want := jsonb_populate_record(was, set_queue.settings);
    update queue q set paused = want.paused, weight = want.weight, lease = want.lease, grace = want.grace, max_attempts = want.max_attempts,
        max_evictions = want.max_evictions, max_refusals = want.max_refusals, backoff = want.backoff, keep = want.keep
    where q.name = was.name;
    if was.weight is distinct from want.weight then
        with changed as (
            update job j set rank = rank_of(j.queue, j.priority, j.submitted) from (select o.id, o.rank from job o where o.queue = was.name for update) old
            where j.id = old.id returning j.class, j.id, old.rank as was, j.rank)
        update ready r set rank = c.rank from changed c where r.class = c.class and r.rank = c.was and r.id = c.id;
    end if;
    if was.paused and not want.paused then
        perform pg_notify('paddock_work', was.name);
    end if;
    return query select * from queue q where q.name = set_queue.name;
end $$;

-- prune removes ended jobs that are older than their queue keeps them, or than age, and classes that no
-- job has.
create function prune(age interval default null) returns table (jobs bigint, classes bigint) language plpgsql as $$
#variable_conflict use_column
begin
    delete from done d using queue q where q.name = d.queue and d.finished < clock_timestamp() - coalesce(prune.age, q.keep);
    get diagnostics jobs = row_count;
    begin
        lock table job in exclusive mode; -- submit looks once more whether its class is there
        delete from class c where not exists (select from job j where j.class = c.id);
        get diagnostics classes = row_count;
    exception when lock_not_available then
        classes := 0; -- the next time
    end;
    return next;
end $$;

-------------------------------------------------------------------------------------------
-- Rights: functions are called with those of their owner, in a search path of ours, and nobody
-- calls what is not given to him here.
do $$
declare
    f record;
begin
    for f in select p.oid::regprocedure as name, p.prokind, p.proname from pg_proc p where p.pronamespace = 'paddock'::regnamespace loop
        execute format('revoke all on %s %s from public', case f.prokind when 'p' then 'procedure' else 'function' end, f.name);
        if f.proname in ('submit', 'submit_many', 'cancel', 'hold', 'release', 'alter', 'retry', 'jobs', 'status', 'await') then
            execute format('grant execute on function %s to paddock_submit, paddock_admin', f.name);
        end if;
        if f.proname in ('jobs', 'status', 'await') then
            execute format('grant execute on function %s to paddock_read', f.name);
        end if;
        if f.proname in ('about', 'hello', 'idle', 'bye', 'classes', 'claim', 'claim_many', 'accept', 'accept_many', 'refuse', 'renew',
            'evict', 'report', 'report_many', 'report_late', 'tick') then
            execute format('grant execute on function %s to paddock_host', f.name);
        end if;
        if f.proname in ('set_queue', 'prune', 'tick') then
            execute format('grant execute on function %s to paddock_admin', f.name);
        end if;
    end loop;
    for f in select distinct p.oid::regprocedure as name from pg_proc p, aclexplode(p.proacl) a
        where p.pronamespace = 'paddock'::regnamespace and a.grantee <> p.proowner
    loop
        execute format('alter function %s security definer set search_path = paddock, pg_temp', f.name);
    end loop;
    alter function wake() security definer set search_path = paddock, pg_temp;
end $$;
