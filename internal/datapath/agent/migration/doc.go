// Package migration replaces the agent's tables and programs by those of another version or size while connections live:
// rows are copied member by member, by their names in BTF, and links change their programs in place. It refuses what would
// lose something.
package migration
