-- Each tick writes the rows of what runs anew. With room left on their pages the new versions stay there, and no index is touched.
alter table evidence set (fillfactor = 50);
