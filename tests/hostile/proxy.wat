;; The smallest proxy, written by hand against wit/consort-proxy.wit: takes part in requests `_hit` and passes them on. The tests put
;; something hostile in the place of the comments (;…;).
(component
  (import "consort:proxy/json@0.1.0" (instance $json
    (export "value" (type (sub resource)))))
  (alias export $json "value" (type $value))

  (import "consort:proxy/channel@0.1.0" (instance $channel
    (export "value" (type $text (eq $value)))
    (type $peers (enum "client" "agent" "host"))
    (export "peer" (type $peer (eq $peers)))
    (type $requests (record
      (field "id" (option u64)) (field "on-behalf-of" (option u64)) (field "method" string) (field "params" (option (own $text)))))
    (export "request" (type $request (eq $requests)))
    (type $notifications (record
      (field "on-behalf-of" (option u64)) (field "method" string) (field "params" (option (own $text)))))
    (export "notification" (type $notification (eq $notifications)))
    (type $responses (record (field "id" u64) (field "outcome" (result (own $text) (error (own $text))))))
    (export "response" (type $response (eq $responses)))
    (type $messages (variant (case "request" $request) (case "notification" $notification) (case "response" $response)))
    (export "message" (type $message (eq $messages)))
    (type $refusals (variant
      (case "denied" string) (case "too-large") (case "flooded") (case "closed") (case "unknown-id")))
    (export "refusal" (type $refusal (eq $refusals)))
    (export "send" (func (param "to" $peer) (param "message" $message) (result (result (error $refusal)))))))
  (alias export $channel "peer" (type $peer))
  (alias export $channel "message" (type $message))
  (alias export $channel "send" (func $send))
  (;IMPORTS;)

  ;; Memory comes first, since `send` needs it.
  (core module $memory
    (memory (export "memory") 1)
    (global $end (mut i32) (i32.const 4096))
    (func (export "realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
      (;REALLOC;)
      (global.set $end (i32.and (i32.add (global.get $end) (i32.const 7)) (i32.const -8)))
      (global.get $end)
      (global.set $end (i32.add (global.get $end) (local.get $size))))
    (func (export "reset") (global.set $end (i32.const 4096)))
    ;; One interest, in `_hit` from the client, to intercept: a registration at 16, the interest at 48, the method at 64.
    (data (i32.const 16) "\00\00\00\00\30\00\00\00\01\00\00\00\00\00\00\00")
    (data (i32.const 48) "\00\00\00\00\40\00\00\00\04\00\00\00\01\00\00\00")
    (data (i32.const 64) "_hit")
    ;; No UTF-8, at 80.
    (data (i32.const 80) "\ff\fe\c0\80"))
  (core instance $memory (instantiate $memory))
  (core func $send (canon lower (func $send) (memory $memory "memory") (realloc (func $memory "realloc"))))

  (core module $proxy
    (import "host" "send" (func $send (param i32 i32 i64 i64 i32 i64 i32 i32 i32 i32 i32)))
    (import "memory" "memory" (memory 1))
    (import "memory" "reset" (func $reset))
    (;PARTS;)
    (type $nothing (func))
    (table $table 1 funcref)
    (func $recurse (param i64) (result i64)
      (i64.add (call $recurse (i64.add (local.get 0) (i64.const 1))) (i64.const 1)))
    (func $forever (loop $again (br $again)))
    ;; Passes a request on to the agent.
    (func $forward (param $ticket i64) (param $method i32) (param $length i32) (param $some i32) (param $params i32)
      (call $send (i32.const 1) (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 1) (local.get $ticket)
        (local.get $method) (local.get $length) (local.get $some) (local.get $params) (i32.const 128)))
    (func (export "start") (param $configuration i32) (result i32)
      (;START;)
      (i32.const 16))
    (func (export "receive")
      (param $source i32) (param $ticket i64) (param $kind i32)
      (param i64 i64 i32 i64) (param $method i32) (param $length i32) (param $some i32) (param $params i32)
      (result i32)
      (if (i32.eq (local.get $length) (i32.const 4)) (then (;HIT;)))
      (call $forward
        (local.get $ticket) (local.get $method) (local.get $length) (local.get $some) (local.get $params))
      (call $reset)
      (i32.const 0)))
  (core instance $host (export "send" (func $send)))
  (core instance $proxy (instantiate $proxy (with "host" (instance $host)) (with "memory" (instance $memory))))
  (;MORE;)

  (type $hows (enum "observe" "intercept"))
  (export $how "how" (type $hows))
  (type $interests (record (field "source" $peer) (field "method" string) (field "how" $how)))
  (export $interest "interest" (type $interests))
  (type $registrations (record (field "interests" (list $interest)) (field "protocol-version" (option u16))))
  (export $registration "registration" (type $registrations))
  (type $receipts (enum "done" "kept"))
  (export $receipt "receipt" (type $receipts))
  (func (export "start") (param "config" (own $value)) (result (result $registration (error string)))
    (canon lift (core func $proxy "start") (memory $memory "memory") (realloc (func $memory "realloc"))))
  (func (export "receive") (param "source" $peer) (param "ticket" u64) (param "message" $message) (result $receipt)
    (canon lift (core func $proxy "receive") (memory $memory "memory") (realloc (func $memory "realloc")))))
