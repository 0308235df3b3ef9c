-- What a tenant can always have.

alter table tenants add column guarantee_gpu_milli bigint not null default 0;
