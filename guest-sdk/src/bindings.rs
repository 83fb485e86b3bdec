//! The component's imports and exports, generated from `wit/`. Owns nothing else; the rest of the crate sees it through
//! [`crate::raw`].

wit_bindgen::generate!({
    path: "wit",
    world: "proxy",
    ownership: Borrowing { duplicate_if_necessary: true },
    pub_export_macro: true,
    export_macro_name: "export_component",
    default_bindings_module: "consort_proxy::__bindings",
});
