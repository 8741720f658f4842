// Package multipath fills the tables by which the agent's program finds the connection that a further subflow of Multipath TCP
// belongs to: homes of tokens, and quotas. It keeps the rows that packets make while they count, and removes the others.
package multipath
