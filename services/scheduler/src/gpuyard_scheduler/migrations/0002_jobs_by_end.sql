-- Jobs that are long over are forgotten.

create index jobs_by_end on jobs (ended_at) where ended_at is not null;
