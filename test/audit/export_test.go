package audit

// Patience is how long a pod may wait although a node has room for it, for tests outside the
// package, which use package live.
const Patience = patience
