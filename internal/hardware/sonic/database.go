package sonic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Numbers of SONiC's databases (database_config.json).
const (
	applDB     = 0
	countersDB = 2
	configDB   = 4
	stateDB    = 6
)

// What others may write is bounded before it is sent to us.
const (
	keysMost    = 1 << 16 // routes
	valueMost   = 1 << 16 // bytes of a value
	batch       = 256     // keys read at a time
	callTime    = 2 * time.Second
	retryPause  = 20 * time.Millisecond
	retryPauses = 250 * time.Millisecond // at most
)

const routeTable = "VNET_ROUTE_TUNNEL_TABLE"

// setScript and deleteScript are one change each, whole or not at all. KEYS: channel, key set, hash, set of deleted keys.
// ARGV: notification, key, then fields and values.
var (
	setScript = redis.NewScript(`
local added = redis.call('SADD', KEYS[2], ARGV[2])
for i = 3, #ARGV, 2 do
	redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
end
if added > 0 then
	redis.call('PUBLISH', KEYS[1], ARGV[1])
end
return added`)

	deleteScript = redis.NewScript(`
local added = redis.call('SADD', KEYS[2], ARGV[2])
redis.call('SADD', KEYS[4], ARGV[2])
redis.call('DEL', KEYS[3])
if added > 0 then
	redis.call('PUBLISH', KEYS[1], ARGV[1])
end
return added`)

	// fieldsScript reads fields (ARGV, after the bound) of hashes (KEYS). What is not there, not a hash or too long is empty.
	fieldsScript = redis.NewScript(`
local all = {}
for _, key in ipairs(KEYS) do
	for i = 2, #ARGV do
		local value = ''
		local length = redis.pcall('HSTRLEN', key, ARGV[i])
		if type(length) == 'number' and length > 0 and length <= tonumber(ARGV[1]) then
			value = redis.call('HGET', key, ARGV[i])
		end
		table.insert(all, value)
	end
end
return all`)

	// bootScript returns the marker of KEYS[1], which is set if the database has none.
	bootScript = redis.NewScript(`
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])`)
)

// databases are connections to those that are used.
type databases struct {
	all map[int]*redis.Client
}

func openDatabases(network, address string) *databases {
	d := &databases{all: map[int]*redis.Client{}}
	for _, number := range []int{applDB, countersDB, configDB, stateDB} {
		d.all[number] = redis.NewClient(&redis.Options{
			Network: network, Addr: address, DB: number, Protocol: 2, DisableIdentity: true,
			MaxRetries: -1, DialTimeout: callTime, ReadTimeout: callTime, WriteTimeout: callTime, DialerRetries: 1,
			ContextTimeoutEnabled: true, PoolSize: 2,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	return d
}

func (d *databases) close() error {
	var errs []error
	for _, client := range d.all {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// retry repeats a call that is idempotent until the database has answered it, or ctx ends.
func retry(ctx context.Context, what string, call func() error) error {
	for pause := retryPause; ; pause = min(2*pause, retryPauses) {
		err := call()
		var refused redis.Error
		switch {
		case err == nil || errors.Is(err, redis.Nil):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case errors.As(err, &refused) && !redis.IsLoadingError(err): // by the database: again would be the same
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last: %w)", what, ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// run runs a script.
func (d *databases) run(ctx context.Context, database int, what string, script *redis.Script, keys []string, args ...any) (result any, err error) {
	err = retry(ctx, what, func() error {
		result, err = script.Run(ctx, d.all[database], keys, args...).Result()
		return err
	})
	return result, err
}

// fields reads fields of hashes, by key.
func (d *databases) fields(ctx context.Context, database int, keys []string, names ...string) (map[string][]string, error) {
	all := make(map[string][]string, len(keys))
	args := []any{valueMost}
	for _, name := range names {
		args = append(args, name)
	}
	for ; len(keys) > 0; keys = keys[min(batch, len(keys)):] {
		part := keys[:min(batch, len(keys))]
		result, err := d.run(ctx, database, "read the database", fieldsScript, part, args...)
		if err != nil {
			return nil, err
		}
		values, ok := result.([]any)
		if !ok || len(values) != len(part)*len(names) {
			return nil, fmt.Errorf("read the database: got an answer of another form")
		}
		for i, key := range part {
			for j := range names {
				text, _ := values[i*len(names)+j].(string)
				all[key] = append(all[key], text)
			}
		}
	}
	return all, nil
}

// keys returns the keys that match a pattern.
func (d *databases) keys(ctx context.Context, database int, pattern string) ([]string, error) {
	seen := map[string]bool{}
	for cursor := uint64(0); ; {
		var part []string
		err := retry(ctx, "list the database", func() (err error) {
			part, cursor, err = d.all[database].Scan(ctx, cursor, pattern, batch).Result()
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, key := range part {
			seen[key] = true
		}
		if len(seen) > keysMost {
			return nil, fmt.Errorf("the database has more than %d keys %s", keysMost, pattern)
		}
		if cursor == 0 {
			break
		}
	}
	all := make([]string, 0, len(seen))
	for key := range seen {
		all = append(all, key)
	}
	return all, nil
}
