// Package codec encodes what lies in etcd. What users write (VIPs, pools, prefix lists, tenants) is a message of api/v1 after one
// byte, its schema: package compile makes the model of it. Other values are JSON with a schema number. A newer schema is
// refused, not guessed at; members and fields that a newer manager wrote are kept when the value is written.
package codec
