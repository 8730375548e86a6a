-- Shares: the jobs of a queue that has a half-life are given out by what their owners have had of it. And what
-- hosts give back that go.

-- Of what an owner has had, half is forgotten in this time. Null: shares do not count.
alter table queue add column half_life interval check (half_life between '1 minute' and '3650 days');

-- What owners may have of a queue, and have had: processors times seconds of runs that have ended. Who is not here
-- has a share of 1 and has had nothing.
create table share (
    queue text references queue on delete cascade,
    owner text check (owner ~ '^[A-Za-z_][A-Za-z0-9._-]{0,63}$'),
    share integer not null default 1 check (share between 1 and 1000000),
    used  double precision not null default 0, -- at that time
    at    timestamptz not null default now(),
    primary key (queue, owner)
) with (fillfactor = 50);

-- What was had since that was last added up, so that the ends of an owner's runs need not wait for each other.
create table spent (queue text not null, owner text not null, used double precision not null);
alter table spent set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- decayed is what is left now of what was had until a time. Both bounds keep the result from being too small for its type.
create function decayed(used double precision, at timestamptz, half_life interval) returns double precision language sql stable
    return case when used < 0.001 then 0
        else used * 0.5 ^ least(greatest((extract(epoch from now() - at) / extract(epoch from half_life))::double precision, 0), 100) end;

create function spend() returns trigger language plpgsql as $$
begin
    insert into spent (queue, owner, used)
    select c.queue, c.owner, c.cpus * extract(epoch from clock_timestamp() - old.accepted_at)
    from class c join queue q on q.name = c.queue
    where c.id = old.class and q.half_life is not null;
    return null;
end $$;
create trigger spend after delete on lease for each row when (old.accepted_at is not null) execute function spend();

-- tick adds up what was had, and does what it did before.
alter function tick() rename to tick_queues;
create function tick() returns integer language plpgsql as $$
#variable_conflict use_column
begin
    if exists (select from spent) and alone('spent') then
        with gone as (delete from spent returning *)
        insert into share as s (queue, owner, used)
        select g.queue, g.owner, sum(g.used) from gone g join queue q on q.name = g.queue group by g.queue, g.owner
        on conflict (queue, owner) do update set at = now(), used = excluded.used +
            coalesce((select decayed(s.used, s.at, q.half_life) from queue q where q.name = s.queue), 0);
    end if;
    return tick_queues();
end $$;

-- Of the queue whose turn it is that job is next whose owner has had the least for his share. A class is looked at when
-- its next job may be the next of all: no job of it is before its low. They come in the order of their lows, so that those
-- that were looked at are the first ones. The heads are the lows of these after that, and null of the others, so that
-- nobody reads again and again what is dead before the first job of one.
create or replace function claim_many(host text, slots text[], classes integer[], lows bigint[], gens bigint[] default '{}')
    returns table (slot text, job bigint, gen bigint, class integer, rank bigint, owner text, queue text, term integer,
        attempts integer, evictions integer, ad text, heads bigint[])
    language plpgsql as $$
#variable_conflict use_column
declare
    stopped boolean;   -- some queue is paused
    fair    boolean;   -- some queue has shares
    told    boolean := false; -- some row has the heads
    found   bigint[] := array_fill(null::bigint, array[cardinality(classes)]); -- the heads
    known   boolean[] := array_fill(false, array[cardinality(classes)]); -- the low is the rank of the next job; null: there is none
    looks   integer;   -- how often one was looked at for a slot
    look    integer[]; -- the places of those to look at
    best    integer;   -- the place of a class in the arrays
    next    bigint;    -- the rank of its next job
    j       job;
    l       lease;
begin
    select bool_or(q.paused), bool_or(q.half_life is not null) into stopped, fair from queue q;
    if stopped then
        -- A host may still ask for a class that was removed.
        select array_agg(case when q.paused is not true then c.low end order by c.n), array_agg(q.paused is true order by c.n) into lows, known
        from unnest(classes, lows) with ordinality c(id, low, n) left join class k on k.id = c.id left join queue q on q.name = k.queue;
    end if;
    for s in 1..cardinality(slots) loop
        -- What it was given and has not accepted is its again, with its fence. A claim waits for nobody, whatever else its
        -- transaction does.
        select * into l from lease o where o.host = claim_many.host and o.slot = slots[s] and not o.accepted
            and o.gen >= coalesce(gens[s], 0) and o.login = session_user and o.cancel is null limit 1 for update skip locked;
        looks := 0;
        while l.job is null loop
            best := null;
            for n in 1..cardinality(classes) loop
                if lows[n] < lows[best] or best is null and lows[n] is not null then
                    best := n;
                end if;
                exit when not known[n]; -- and those after it have no lower one
            end loop;
            exit when best is null;
            if not known[best] or fair and false = any (known) then
                looks := looks + 1;
                look := array[best];
                if fair or looks > 4 then -- to choose one by one would take the square of their number
                    look := array(select c.n from unnest(known) with ordinality c(known, n) where not c.known);
                end if;
                foreach best in array look loop
                    select r.rank into next from ready r where r.class = classes[best] and r.rank >= lows[best] order by r.rank limit 1;
                    -- Where there is none what comes is looked for from a minute ago on: it may not be committed yet.
                    found[best] := coalesce(next, greatest(lows[best], (extract(epoch from clock_timestamp()) * 1000)::bigint - 60000));
                    lows[best] := next;
                    known[best] := true;
                end loop;
                continue;
            end if;
            if fair then
                -- The turn of a queue is the smallest rank of its classes.
                select h.n into best
                from (select k.queue, k.owner, c.n, c.rank, min(c.rank) over (partition by k.queue) as turn
                    from unnest(classes, lows) with ordinality c(id, rank, n) join class k on k.id = c.id
                    where c.rank is not null) h
                    join queue q on q.name = h.queue left join share s on s.queue = h.queue and s.owner = h.owner
                order by h.turn, h.queue, case when q.half_life is null then 0 else coalesce(decayed(s.used, s.at, q.half_life) / s.share, 0) end,
                    h.rank, h.n
                limit 1;
            end if;
            l := give(claim_many.host, slots[s], classes[best], lows[best]);
            if l.job is null then
                lows[best] := null; -- others take all that there is
            else
                known[best] := false;
            end if;
        end loop;
        continue when l.job is null;
        select * into j from job o where o.id = l.job;
        slot := slots[s];
        job := l.job;
        gen := l.gen;
        class := j.class;
        rank := j.rank;
        owner := j.owner;
        queue := j.queue;
        term := extract(epoch from l.term);
        attempts := j.attempts;
        evictions := j.evictions;
        ad := j.ad;
        heads := case when not told then found end;
        told := true;
        return next;
    end loop;
end $$;

create or replace function claim(host text, slot text, classes integer[], lows bigint[])
    returns table (job bigint, gen bigint, class integer, rank bigint, owner text, queue text, term integer, attempts integer,
        evictions integer, ad text)
    language sql as $$
    select m.job, m.gen, m.class, m.rank, m.owner, m.queue, m.term, m.attempts, m.evictions, m.ad
    from (select coalesce(array_agg(c.id order by c.low), '{}') as classes, coalesce(array_agg(c.low order by c.low), '{}') as lows
            from unnest(claim.classes, claim.lows) c(id, low)) o,
        claim_many(claim.host, array[claim.slot], o.classes, o.lows) m;
$$;

create or replace function set_queue(name text, settings jsonb default '{}') returns setof queue language plpgsql as $$
#variable_conflict use_column
declare
    was  queue;
    want queue;
    key  text;
begin
    for key in select k from jsonb_object_keys(set_queue.settings) k loop
        if key not in ('paused', 'weight', 'lease', 'grace', 'max_attempts', 'max_evictions', 'max_refusals', 'backoff', 'keep', 'half_life') then
            raise invalid_parameter_value using message = format('a queue has no "%s"', key);
        end if;
    end loop;
    insert into queue (name) values (set_queue.name) on conflict do nothing;
    select * into strict was from queue q where q.name = set_queue.name for update;
    want := jsonb_populate_record(was, set_queue.settings);
    update queue q set paused = want.paused, weight = want.weight, lease = want.lease, grace = want.grace, max_attempts = want.max_attempts,
        max_evictions = want.max_evictions, max_refusals = want.max_refusals, backoff = want.backoff, keep = want.keep,
        half_life = want.half_life
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

-- set_share says how much an owner may have of a queue, compared with others.
create function set_share(queue text, owner text, share integer) returns void language plpgsql as $$
#variable_conflict use_column
begin
    if not exists (select from queue q where q.name = set_share.queue) then
        raise invalid_parameter_value using message = format('there is no queue "%s"', set_share.queue);
    end if;
    insert into share (queue, owner, share) values (set_share.queue, set_share.owner, set_share.share)
    on conflict (queue, owner) do update set share = excluded.share;
end $$;

create view shares as
    select s.queue, s.owner, s.share, decayed(s.used, s.at, q.half_life) as used
    from share s join queue q on q.name = s.queue and q.half_life is not null;
grant select on shares to paddock_read, paddock_admin;

do $$
declare
    f record;
begin
    for f in select p.oid::regprocedure as name, p.proname from pg_proc p where p.pronamespace = 'paddock'::regnamespace
        and p.proname in ('decayed', 'spend', 'tick', 'tick_queues', 'claim', 'claim_many', 'set_queue', 'set_share')
    loop
        execute format('revoke all on function %s from public', f.name);
        if f.proname in ('tick', 'set_share') then
            execute format('grant execute on function %s to paddock_admin', f.name);
        end if;
        if f.proname = 'tick' then
            execute format('grant execute on function %s to paddock_host', f.name);
        end if;
        if f.proname = 'decayed' then -- who reads a view calls its functions
            execute format('grant execute on function %s to paddock_read, paddock_admin', f.name);
        elsif f.proname = 'tick_queues' then
            execute format('revoke all on function %s from paddock_host, paddock_admin', f.name);
        else
            execute format('alter function %s security definer set search_path = paddock, pg_temp', f.name);
        end if;
    end loop;
    -- A host has statements planned when its first jobs come, and calls them for weeks by the same connection: what was
    -- known of the size of tables then is of the past. And what seems to be dear for that is not worth a compiler.
    for f in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = 'paddock'::regnamespace
        and p.proname in ('claim_many', 'accept', 'refuse', 'renew', 'evict', 'report')
    loop
        execute format('alter function %s set enable_seqscan = off', f.name);
        execute format('alter function %s set jit = off', f.name);
    end loop;
    -- Who keeps a transaction open in which he has changed a job of his, or prune or set_queue, does not keep a host from what it
    -- does for others: the call fails, and is made again. Nor do these keep all others waiting because of him.
    for f in select p.oid::regprocedure as name, p.proname from pg_proc p where p.pronamespace = 'paddock'::regnamespace
        and p.proname in ('accept', 'refuse', 'renew', 'evict', 'report', 'tick', 'prune', 'set_queue')
    loop
        execute format('alter function %s set lock_timeout = %L', f.name, case when f.proname in ('prune', 'set_queue') then '1 s' else '100 ms' end);
    end loop;
end $$;
