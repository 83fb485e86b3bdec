//! What wasmtime makes of the world in `wit/`.

wasmtime::component::bindgen!({
    path: "wit",
    world: "proxy",
    with: { "consort:proxy/json.value": super::json::Value },
    // Many edits of a large text take long, and must hold up nobody meanwhile.
    imports: { "consort:proxy/json.[method]value.edit": async | trappable, default: trappable },
    exports: { default: async },
});
